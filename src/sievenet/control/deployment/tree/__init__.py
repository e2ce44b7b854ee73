"""The tree behind a deployed table: compiled code, imported where a switch has a limit."""

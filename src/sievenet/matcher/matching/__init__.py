"""Events against blocks of records: the compiled code that every match runs through.  For `matcher` only."""

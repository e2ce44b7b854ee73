"""Nodes at content routers (`node`, kept connected by `membership`), and their work for the router (`volunteer`)."""

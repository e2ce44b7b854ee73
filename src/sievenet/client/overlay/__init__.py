"""Nodes at content routers (`node`, over `link`), what they do for their router (`helping`), gateways to fabrics."""

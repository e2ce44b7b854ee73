"""Data ports: how a node's packets reach the network and come from it, one at a time or many with one system call."""

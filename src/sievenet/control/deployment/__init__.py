"""What switches are given in the place of their ideal tables: tables that fit."""

from sievenet.control.deployment.deployment import Deployment
from sievenet.control.deployment.holdings import Holdings
from sievenet.control.deployment.keys import Ports, Table, Transform
from sievenet.control.deployment.rooms import Rooms

__all__ = ["Deployment", "Holdings", "Ports", "Rooms", "Table", "Transform"]

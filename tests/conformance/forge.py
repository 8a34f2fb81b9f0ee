"""The name under which other folders still import tests.helpers.forge."""

from tests.helpers.forge import *

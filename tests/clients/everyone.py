"""All clients of GPyTorch, by name."""

from tests.clients import regression as regression
from tests.clients import several_outputs as several_outputs
from tests.clients import variational as variational
from tests.clients.client import RECIPES as RECIPES

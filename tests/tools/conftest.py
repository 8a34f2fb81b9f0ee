"""The recorded cases are a module in the directory of what was recorded of them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "recorded"))

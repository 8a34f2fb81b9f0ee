import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("unit", deadline=None)  # the first use of pyarrow, and sanitizers, take their time
settings.load_profile("unit")

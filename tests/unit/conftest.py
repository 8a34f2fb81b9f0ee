from hypothesis import settings

from tests.helpers.effort import times

# no deadline: the first use of pyarrow, and sanitizers, take their time
settings.register_profile("unit", deadline=None, max_examples=times(40))
settings.load_profile("unit")

from hypothesis import settings

from tests.helpers.effort import times

settings.register_profile("unit", parent=settings.get_profile("untimed"), max_examples=times(40))
settings.load_profile("unit")

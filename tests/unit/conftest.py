from hypothesis import settings

settings.register_profile("unit", deadline=None)  # the first use of pyarrow, and sanitizers, take their time
settings.load_profile("unit")

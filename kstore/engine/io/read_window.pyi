from typing import final

@final
class ReadWindow: ...

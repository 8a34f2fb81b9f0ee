from typing import final

@final
class Window: ...

from typing import final

@final
class BinaryInput: ...

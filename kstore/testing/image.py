"""The content of a directory in memory."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Image:
    """A directory in memory. `files`: contents by relative path. `directories`: relative paths."""

    files: dict[str, bytes] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, root: Path) -> "Image":
        """Read a directory."""
        image = cls()
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir():
                image.directories.add(name)
            else:
                image.files[name] = path.read_bytes()
        return image

    def write_to(self, root: Path) -> None:
        """Create these files and directories in `root`, an empty directory."""
        for name in sorted(self.directories):
            Path(root, name).mkdir()
        for name, content in self.files.items():
            with open(f"{root}/{name}", "wb") as file:
                file.write(content)

    def digest(self) -> bytes:
        """16 bytes, equal for equal content."""
        sum_ = hashlib.blake2b(digest_size=16)
        for name in sorted(self.directories):
            sum_.update(b"%d %s/" % (len(name), name.encode()))
        for name in sorted(self.files):
            content = self.files[name]
            sum_.update(b"%d %s %d " % (len(name), name.encode(), len(content)))
            sum_.update(content)
        return sum_.digest()

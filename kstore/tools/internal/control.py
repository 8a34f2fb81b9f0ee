"""The control records of KRaft (spec 2.4, 11.2)."""

from kstore.tools.internal.schema import Cursor, by_name, json_text, read_message

_NAMES = {
    2: ("LeaderChangeMessage", " LeaderChange: "),
    3: ("SnapshotHeaderRecord", " SnapshotHeader "),
    4: ("SnapshotFooterRecord", " SnapshotFooter "),
    5: ("KRaftVersionRecord", " KRaftVersion "),
    6: ("VotersRecord", " KRaftVoters "),
}


def control_text(control_type: int, value: bytes) -> str | None:
    """What stands behind the metadata of a control record of this type, None for a type without a message."""
    if control_type not in _NAMES:
        return None
    name, prefix = _NAMES[control_type]
    version = Cursor(value).number("int16")
    return prefix + json_text(read_message(by_name(name), Cursor(value), version))

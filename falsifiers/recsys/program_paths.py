"""A PATH without one program."""

import os
from pathlib import Path


def without(program: str, folder: Path) -> str:
    """Return PATH with a folder of links instead of each folder that has the program.

    Args:
        folder: where the links are made; it must not exist.
    """
    places: dict[Path, Path] = {}
    for place in map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        real = place.resolve()
        if real in places:  # /bin may be /usr/bin
            continue
        places[real] = place
        if (place / program).exists():
            places[real] = folder / str(len(places))
            places[real].mkdir(parents=True)
            for entry in place.iterdir():
                if entry.name != program:
                    (places[real] / entry.name).symlink_to(entry)
    return os.pathsep.join(map(str, places.values()))

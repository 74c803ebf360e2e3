"""What the tests of the packages share: this folder and that of the man pages' generator on the path."""

import places  # noqa: F401

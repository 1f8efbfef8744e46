"""One rule for the modes of all secrets: a group may read one, everybody may not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from rollcall_ha.api.rocketmq.access.accounts import new_accounts, read_accounts
from rollcall_ha.cli import issuing
from rollcall_ha.client.identity import Identity
from rollcall_ha.hooks.settings import _private_text
from rollcall_ha.node import sealing
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.files import atomic_replace
from rollcall_ha.node.tls import Credentials, TlsFiles

NAME = CertifiedName(fleet="demo", kind=PeerKind.CONTROLLER, name="c1")


@dataclasses.dataclass(frozen=True)
class Folder:
    """Every kind of secret, each in a file of its own."""

    path: Path

    @classmethod
    def fill(cls, path: Path) -> Folder:
        authority = Authority.create("demo")
        authority.write(path / "ca.pem", path / "ca.key")
        authority.issue(NAME, days=1).write(path / "c1.pem", path / "c1.key")
        atomic_replace(path / "word", b"wintergreen\n")
        atomic_replace(path / "accounts", new_accounts().encode())
        return cls(path)

    def readers(self) -> dict[str, tuple[Path, Callable[[], object]]]:
        at = self.path
        files = TlsFiles(authority=at / "ca.pem", certificate=at / "c1.pem", key=at / "c1.key")
        return {
            "key of a server": (files.key, lambda: Credentials(files, fleet="demo", name=NAME)),
            "key of a caller": (files.key, Identity(authority=files.authority, certificate=files.certificate).context),
            "token": (at / "word", Identity(token_file=at / "word").token),
            "key of the authority": (at / "ca.key", lambda: Authority.load(at / "ca.pem", at / "ca.key")),
            "passphrase of the authority": (at / "word", lambda: issuing.read_passphrase(at / "word")),
            "passphrase of a backup": (at / "word", lambda: sealing.read_passphrase(at / "word")),
            "secret of a hook": (at / "word", lambda: _private_text("pager", at / "word")),
            "access keys": (at / "accounts", lambda: read_accounts(at / "accounts")),
        }


KINDS = tuple(Folder(Path()).readers())


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640, 0o660])
@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_that_a_group_may_read_is_taken(tmp_path: Path, kind: str, mode: int) -> None:
    """As a Secret volume with an fsGroup shows it: of root, 0440."""
    file, read = Folder.fill(tmp_path).readers()[kind]
    file.chmod(mode)

    try:
        read()
    except ValueError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o444, 0o606])
@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_that_everybody_may_read_is_refused_with_mode_and_remedy(tmp_path: Path, kind: str, mode: int) -> None:
    """A private key of 0644 was taken without a word."""
    file, read = Folder.fill(tmp_path).readers()[kind]
    file.chmod(mode)

    with pytest.raises(ValueError, match=rf"mode is {mode:04o}.*chmod 0640"):
        read()


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_behind_the_links_of_a_volume_is_judged_by_its_own_mode(tmp_path: Path, kind: str) -> None:
    """Kubernetes: NAME -> ..data/NAME -> ..2026/NAME; the mode of a link is 0777."""
    file, read = Folder.fill(tmp_path).readers()[kind]
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    file.rename(tmp_path / "..2026" / file.name)
    file.symlink_to(Path("..data", file.name))

    read()
    file.chmod(0o644)
    with pytest.raises(ValueError, match="mode is 0644"):
        read()

"""The pods of an Indexed Job or a JobSet of Kubernetes, each of which runs the same `pypmix run`.

The pod with index 0 is the launcher. Kubernetes sets a pod's index (JOB_COMPLETION_INDEX) and its host name
`JOB-KUBERNETES_INDEX`, which others resolve below the headless service of the job. The manifest sets the number of pods
(PYPMIX_NODES), the service (PYPMIX_SERVICE), and the path of the mounted secret (PYPMIX_SECRET_FILE). The name of the
launcher's pod resolves once the pod has an address, so the others resolve it again until then. No other name needs to
resolve: the launcher takes the address of a pod from its connection.
"""

from __future__ import annotations

from pypmix.host.rosters.base import RosterError
from pypmix.host.rosters.choosing import KUBERNETES_INDEX
from pypmix.host.rosters.symmetric import Place, SymmetricRoster, meeting_point, secret
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pypmix.host.rosters.base import Settings

PORT = 7777

NODES = "PYPMIX_NODES"
SERVICE = "PYPMIX_SERVICE"

HINT = (
    "does that pod run? Its name resolves where a headless Service (clusterIP: None) with publishNotReadyAddresses has "
    "the name that the pods have as `subdomain`"
)


class KubernetesRoster(SymmetricRoster):
    """The pods of an Indexed Job."""

    name = "kubernetes"

    @classmethod
    def found(cls, settings: Settings) -> str:
        """Return a text with this pod's index, empty outside of a Job; `place` reports errors in the manifest."""
        env = settings.env
        if NODES not in env and SERVICE not in env:
            return ""
        return f"pod {env.get(KUBERNETES_INDEX)} of {env.get(NODES)} of a Kubernetes Job"

    @classmethod
    def place(cls, settings: Settings) -> Place:
        """Return the place that Kubernetes has given this pod."""
        env = settings.env
        index = _number(
            env, KUBERNETES_INDEX, 0, "Kubernetes sets it in the pods of an Indexed Job (completionMode: Indexed)"
        )
        size = _number(env, NODES, 1, "the manifest sets it in each pod, to the Job's `completions`")
        if index >= size:
            raise RosterError(f"{KUBERNETES_INDEX} is {index}, and {NODES} only {size}: it is the Job's `completions`")
        own = env.get("HOSTNAME", "")
        job, dash, last = own.rpartition("-")
        numbered = dash and last == str(index)
        if settings.meet:
            address = meeting_point(settings.meet)
        else:
            if not numbered:
                raise RosterError(
                    f"the host name of a pod of an Indexed Job ends with its index {index}, and this is {own!r:.80}: "
                    "name the launcher's pod with --meet HOST:PORT"
                )
            service = env.get(SERVICE, "")
            address = (f"{job}-0.{service}" if service else f"{job}-0", PORT)
        names = tuple([f"{job}-{place}" for place in range(size)]) if numbered else ()
        return Place(index, size, secret(settings), (address,), own, names=names, hint=HINT)


def _number(env: Mapping[str, str], name: str, least: int, source: str) -> int:
    if name not in env:
        raise RosterError(f"{name} is not set: {source}")
    found = decimal(env[name], 1 << 20)
    if found is None or found < least:
        raise RosterError(f"{name} is to be a number of at least {least}, and is {env[name]!r:.80}")
    return found

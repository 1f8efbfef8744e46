"""
The HA links of one simulated broker: the shell around ``MasterLink`` and ``SlaveLink``.

Here: what ``ha.service`` and ``ha.transport`` do with sockets. Bytes are cut at random places, as sockets cut them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rollcall_ha.broker.core.role_io import LinkOpened, LinkTarget, SlaveLinkClosed, TruncationPlanned
from rollcall_ha.broker.mastership import link_reign_of
from rollcall_ha.controller.contract.ids import FleetIncarnation, LogOffset
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.ha.actions import (
    CloseLink,
    ConfirmHeard,
    HigherEpochSeen,
    IsolationWanted,
    LinkReady,
    MasterAction,
    RecordEpoch,
    Send,
    SendTransfer,
    SlaveAcked,
    SlaveAction,
    SlaveOpened,
    TruncateLog,
)
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.links import FollowTarget, LinkReign, LinkSettings, ReplicaIdentity
from rollcall_ha.ha.master_link import MasterLink, MasterLinkState
from rollcall_ha.ha.slave_link import SlaveLink, SlaveLinkState
from tests.support.sim_kernel import MS
from tests.support.sim_net import End, SimNet

if TYPE_CHECKING:
    from tests.sim.broker import BrokerNode


class _Accepted:
    """One link of a slave to this master."""

    def __init__(self, end: End, link: MasterLink) -> None:
        self.end = end
        self.link = link


class _Dialled:
    """The slave link of one generation: dials until it is stopped."""

    def __init__(self, generation: int, target: LinkTarget) -> None:
        self.generation = generation
        self.target = target
        self.end: End | None = None
        self.link: SlaveLink | None = None
        self.attempt = 0
        self.acked_end = LogOffset(0)


class HaService:
    """All links of one broker."""

    def __init__(self, node: BrokerNode, net: SimNet) -> None:
        self._node = node
        self._net = net
        self._accepted: list[_Accepted] = []
        self._dialled: _Dialled | None = None
        self._generation = 0
        self._reign: LinkReign | None = None
        self._view: SetView | None = None
        self.is_cutting = False
        """A cut is under way: nobody else touches the log."""
        self._settings = LinkSettings(
            heartbeat_interval_ms=100,
            idle_timeout_ms=700,
            handshake_timeout_ms=500,
            cutting_timeout_ms=2_000,
            transfer_bytes_max=node.kernel.random.choice((300, 1_000, 8_192)),
        )

    def start(self) -> None:
        """Accept slaves."""
        address = self._node.plan.description.ha_address
        self._net.listen(self._node.process, address, self._accept)

    def view_arrived(self, view: SetView) -> None:
        """For the fleet's name, the newest unclean epoch, and the replicas that are served."""
        self._view = view
        if self._reign is None or self._reign.master_epoch != view.master_epoch:
            return
        reign = link_reign_of(view)
        if reign != self._reign:
            self._reign = reign
            for accepted in list(self._accepted):
                actions = accepted.link.replicas_changed(reign, self._confirm(), self._node.now_ms())
                self._master_do(accepted, actions)

    def _identity(self) -> ReplicaIdentity:
        node = self._node
        assert node.broker_id is not None
        return ReplicaIdentity(
            set_key=node.plan.set_key,
            fleet_incarnation=self._view.fleet_incarnation if self._view is not None else FleetIncarnation(""),
            broker_id=node.broker_id,
            incarnation=node.incarnation,
        )

    def _confirm(self) -> LogOffset:
        reign = self._node.reign
        return reign.sync.confirm_offset if reign is not None else self._node.log.confirm_offset

    # --- master ---

    def _accept(self, end: End) -> None:
        node = self._node
        if node.broker_id is None or self._view is None:
            end.close()
            return
        self._generation += 1
        link = MasterLink(
            identity=self._identity(),
            reign=self._reign,
            link_generation=self._generation,
            log=node.log,
            settings=self._settings,
            now_ms=node.now_ms(),
        )
        accepted = _Accepted(end, link)
        self._accepted.append(accepted)

        def received(data: object) -> None:
            assert isinstance(data, bytes)
            self._master_do(accepted, link.bytes_received(data, self._confirm(), node.now_ms()))

        def closed() -> None:
            link.connection_lost()
            self._dropped(accepted)

        end.on_message = received
        end.on_closed = closed

    def _dropped(self, accepted: _Accepted) -> None:
        if accepted in self._accepted:
            self._accepted.remove(accepted)
            peer = accepted.link.peer
            if peer is not None:
                generation = accepted.link.link_generation
                self._node.sync_outputs(lambda sync: sync.link_closed(peer.broker_id, generation, self._node.now_ms()))

    def _master_do(self, accepted: _Accepted, actions: list[MasterAction]) -> None:
        self._execute(accepted, actions)
        self._pump(accepted)

    def _execute(self, accepted: _Accepted, actions: list[MasterAction]) -> None:
        node = self._node
        for action in actions:
            if isinstance(action, Send):
                self._send(accepted.end, action.data)
            elif isinstance(action, SendTransfer):
                region = action.region
                body = os.pread(region.fd, region.length, region.position)
                self._send(accepted.end, action.header + body)
            elif isinstance(action, CloseLink):
                accepted.end.close()
                self._dropped(accepted)
            elif isinstance(action, SlaveOpened):
                shake = action.handshake
                for other in list(self._accepted):
                    peer = other.link.peer
                    if other is not accepted and peer is not None and peer.broker_id == shake.broker_id:
                        self._master_do(other, other.link.end(ErrorCode.LINK_REPLACED, "a newer link"))
                node.sync_outputs(
                    lambda sync, shake=shake, generation=action.link_generation: sync.link_opened(  # type: ignore[misc]
                        shake.broker_id, shake.incarnation, generation, is_learner=shake.is_learner
                    )
                )
            elif isinstance(action, SlaveAcked):
                node.sync_outputs(lambda sync, ack=action.ack: sync.ack(ack, node.now_ms()))  # type: ignore[misc]
            elif isinstance(action, HigherEpochSeen):
                self._higher_epoch()

    def _pump(self, accepted: _Accepted) -> None:
        while accepted.link.state is MasterLinkState.TRANSFER and not self.is_cutting:
            actions = accepted.link.plan_transfer(self._confirm(), self._node.now_ms())
            if not actions:
                return
            self._execute(accepted, actions)

    def _send(self, end: End, data: bytes) -> None:
        """A stream is cut where it likes."""
        if len(data) > 1 and self._node.kernel.chance(0.1):
            at = self._node.kernel.random.randrange(1, len(data))
            end.send(data[:at])
            data = data[at:]
        end.send(data)

    def reign_opened(self, view: SetView) -> None:
        """Slaves that came early are answered now."""
        newest = self._view
        is_newer = newest is not None and newest.master_epoch == view.master_epoch
        self._reign = link_reign_of(newest if newest is not None and is_newer else view)
        for accepted in list(self._accepted):
            self._master_do(accepted, accepted.link.reign_opened(self._reign, self._confirm(), self._node.now_ms()))

    def reign_ended(self, reason: str) -> None:
        """Links of slaves go (R12)."""
        self._reign = None
        for accepted in list(self._accepted):
            self._master_do(accepted, accepted.link.end(ErrorCode.REIGN_ENDED, reason))

    def log_grew(self) -> None:
        """There is something to send."""
        for accepted in list(self._accepted):
            self._pump(accepted)

    # --- slave ---

    def start_slave_link(self, generation: int, target: LinkTarget) -> None:
        """Dial, and dial again."""
        self._dialled = _Dialled(generation, target)
        self._dial(self._dialled)

    def stop_slave_link(self, generation: int) -> LogOffset:
        """Nothing is applied or acked any more; returns the highest end that was acked on it."""
        dialled = self._dialled
        if dialled is None or dialled.generation != generation:
            return LogOffset(0)
        self._dialled = None
        if dialled.link is not None:
            dialled.link.connection_lost()
        if dialled.end is not None:
            dialled.end.close()
        return dialled.acked_end

    def _dial(self, dialled: _Dialled) -> None:
        if self._dialled is not dialled:
            return
        dialled.attempt += 1
        attempt = dialled.attempt

        def opened(end: End) -> None:
            if self._dialled is not dialled or attempt != dialled.attempt:
                end.close()
                return
            self._opened(dialled, end, attempt)

        address = dialled.target.ha_address
        host = address.partition(":")[0]
        self._net.connect(self._node.process, address, host, opened, lambda: self._redial(dialled, attempt))
        self._node.process.after(
            400 * MS, "dial timeout", lambda: None if dialled.end is not None else self._redial(dialled, attempt)
        )

    def _redial(self, dialled: _Dialled, attempt: int) -> None:
        if self._dialled is not dialled or attempt != dialled.attempt:
            return
        dialled.attempt += 1
        again = dialled.attempt
        delay_ms = self._node.kernel.random.randrange(20, 120)
        self._node.process.after(
            delay_ms * MS, "redial", lambda: self._dial(dialled) if dialled.attempt == again else None
        )

    def _opened(self, dialled: _Dialled, end: End, attempt: int) -> None:
        node, target = self._node, dialled.target
        dialled.end = end
        link = SlaveLink(
            identity=self._identity(),
            target=FollowTarget(
                host=target.ha_address,
                port=0,
                master=target.broker_id,
                master_incarnation=target.incarnation,
                master_epoch=target.master_epoch,
                is_learner=node.plan.description.is_learner,
                flush=node.plan.configuration.flush,
            ),
            log=node.log,
            durable_confirm=node.log.durable_confirm_offset,
            is_promise_durable=node.role.marks.promised >= target.master_epoch,
            settings=self._settings,
            now_ms=node.now_ms(),
        )
        dialled.link = link

        def received(data: object) -> None:
            assert isinstance(data, bytes)
            if self._dialled is dialled and dialled.link is link:
                self._slave_do(dialled, link, link.bytes_received(data, node.now_ms()))

        def closed() -> None:
            if self._dialled is dialled and dialled.link is link:
                link.connection_lost()
                self._slave_closed(dialled, attempt, "connection closed")

        end.on_message = received
        end.on_closed = closed
        self._slave_do(dialled, link, link.connected(node.now_ms()))

    def _slave_closed(self, dialled: _Dialled, attempt: int, reason: str) -> None:
        dialled.end = None
        dialled.link = None
        self._node.tell(SlaveLinkClosed(generation=dialled.generation, reason=reason))
        self._redial(dialled, attempt)

    def _slave_do(self, dialled: _Dialled, link: SlaveLink, actions: list[SlaveAction]) -> None:
        node = self._node
        for action in actions:
            if self._dialled is not dialled or dialled.link is not link or dialled.end is None:
                return
            if isinstance(action, Send):
                if link.state in (SlaveLinkState.TRANSFER, SlaveLinkState.RECORDING):
                    self._acks(dialled, node.log.ackable_offset)
                self._send(dialled.end, action.data)
            elif isinstance(action, CloseLink):
                dialled.end.close()
                node.counts.add(f"slave links closed {action.code.name}")
                self._slave_closed(dialled, dialled.attempt, action.detail)
            elif isinstance(action, TruncateLog | IsolationWanted):
                node.tell(
                    TruncationPlanned(
                        generation=dialled.generation, plan=action.plan, released=node.log.released_offset
                    )
                )
            elif isinstance(action, RecordEpoch):
                self._record_epoch(dialled, link, action)
            elif isinstance(action, LinkReady):
                target = dialled.target
                node.laws.joined(
                    node.plan.set_key, node.disk, target.broker_id, target.incarnation, target.master_epoch
                )
                node.oracle.link_ready(node.plan.name, node.durable_marks(), dialled.target.master_epoch)
                node.tell(LinkOpened(generation=dialled.generation))
            elif isinstance(action, ConfirmHeard):
                node.log.note_confirm(action.offset, LogOffset(0))
            elif isinstance(action, HigherEpochSeen):
                self._higher_epoch()

    def _acks(self, dialled: _Dialled, acked: LogOffset) -> None:
        target, node = dialled.target, self._node
        node.laws.acked(
            node.plan.set_key,
            node.disk,
            target.broker_id,
            target.incarnation,
            target.master_epoch,
            before=dialled.acked_end,
            ack=acked,
        )
        dialled.acked_end = max(dialled.acked_end, acked)

    def was_cut(self) -> None:
        """For the master that this replica follows now."""
        dialled, node = self._dialled, self._node
        if dialled is not None:
            target = dialled.target
            node.laws.cut(node.plan.set_key, node.disk, target.broker_id, target.incarnation, target.master_epoch)

    def _record_epoch(self, dialled: _Dialled, link: SlaveLink, action: RecordEpoch) -> None:
        node = self._node

        def do() -> None:
            if self._dialled is not dialled or link.state is not SlaveLinkState.RECORDING:
                return
            try:
                node.record_epoch(action.entry)
            except OSError as error:
                self._slave_do(dialled, link, link.fail(ErrorCode.LOG_FAILED, "an entry recorded", str(error)))
                return
            self._slave_do(dialled, link, link.epoch_recorded(node.now_ms()))

        node.process.after(node.kernel.random.randrange(50, 3_000), "record epoch", do)

    def resume_slave_link(self, generation: int) -> None:
        """The plan is carried out."""
        dialled = self._dialled
        if dialled is None or dialled.generation != generation or dialled.link is None:
            return
        self._slave_do(dialled, dialled.link, dialled.link.truncation_done(self._node.now_ms()))

    def log_flushed(self) -> None:
        """What is synced may be acked in flush mode sync."""
        dialled, node = self._dialled, self._node
        if dialled is not None and dialled.link is not None:
            actions = dialled.link.log_synced(node.log.flushed_offset, node.now_ms())
            self._slave_do(dialled, dialled.link, actions)

    # --- both ---

    def tick(self) -> None:
        """Heartbeats, and peers that went silent."""
        now_ms = self._node.now_ms()
        for accepted in list(self._accepted):
            self._master_do(accepted, accepted.link.tick(self._confirm(), now_ms))
        dialled = self._dialled
        if dialled is not None and dialled.link is not None:
            self._slave_do(dialled, dialled.link, dialled.link.tick(now_ms))

    def _higher_epoch(self) -> None:
        self._node.counts.add("higher epochs seen by peers")
        self._node.session.look_up()

// Package sim is a seeded simulator of several nodes that run the transfer machine: their clients, network and
// transports, with everything that can go wrong. After each step it checks the promises:
//
//   - Each operation has one end, in time. No bytes are late, none are wrong, and none go to those who may not have
//     them. No block is held for two operations that exclude each other. Offers end when all consumers have all their
//     parts, and not before. In the end everything is free.
//   - What is done is done in all ranks that it was for, from the memory in which it was offered, whichever of them were
//     replaced, left or stood still over a restart, or died before the daemon had read what they submitted. No earlier
//     process has the place of one that came later.
//   - Who has not an end's token, or not that of the other ranks, gets nothing. Who comes first to a pipe that was closed
//     with nothing in it hears so.
//   - What an end has received is done, however long its node was away. What is under way goes on when a daemon's limits
//     and leases change.
//   - A mad node has no part in what others have among themselves, and what it began with them is over in the end.
//   - A take says exactly which blocks it lacks, and what it does not list is right, whatever offers lack and however ranks
//     cut their tokens.
//
// A model may keep only the last tokens of some layers, in blocks of their own, and may have state, which moves whole.
//
// A run is a function of its Options: the same seed replays exactly. Who comes to a daemon is judged by
// daemon/transfer/roster, as in daemon/session. Planning is real (daemon/plan over small layouts). Memory is real bytes:
// every element says which request, layer, token and head it belongs to.
package sim

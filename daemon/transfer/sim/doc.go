// Package sim is a seeded simulator of several nodes that run the transfer machine: their clients, their network and
// their transports, with everything that can go wrong. After each step it checks the promises: one end for each
// operation, in time; no late bytes; no wrong bytes, and none for who may not have them; no block held for two that
// exclude each other; offers that end when all have all their parts, and not before; everything freed in the end.
// What is done is done in all ranks that it was for, from the memory in which it was offered, whoever was replaced, left or
// stood still over a restart, or died before the daemon had read what it submitted; and nobody of before has the place of who came later.
// A model may keep the last tokens alone of some layers, in blocks of their own.
// What an end has received is done however long its node was away, and what is under way goes on when a daemon's limits and leases change.
// A node that is mad has no part in what others have among them, and what it began with them is over in the end.
//
// A run is a function of its Options: the same seed replays exactly. Who comes to a daemon is judged as daemon/session
// does, by daemon/transfer/roster. Planning is real (daemon/plan over small layouts);
// memory is real bytes whose every element says which request, layer, token and head it belongs to.
package sim

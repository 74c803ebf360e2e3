// Package sim is a seeded simulator of several nodes that run the transfer machine: their clients, their network and
// their transports, with everything that can go wrong. After each step it checks the promises: one end for each
// operation, in time; no late bytes; no wrong bytes, and none for who may not have them; no block held for two that
// exclude each other; offers that end when all have all their parts, and not before; everything freed in the end.
//
// A run is a function of its Options: the same seed replays exactly. Planning is real (daemon/plan over small layouts);
// memory is real bytes whose every element says which request, layer, token and head it belongs to.
package sim

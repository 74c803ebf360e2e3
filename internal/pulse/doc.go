// Package pulse lets long-lived loops be asked whether they still turn: a Listener for loops that accept, a Beat for
// those that wait for others. It costs next to nothing while nobody asks. Until makes loops that wake by the clock wake
// together.
package pulse

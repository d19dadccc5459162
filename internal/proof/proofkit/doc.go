// Package proofkit has what the commands chaos and load share: child processes that end with
// their parent, readings of /proc, and waiting with a context. Call [StartChild] to start a
// process and [Pause] to wait. It knows nothing of Cuelight but how to start its daemon.
package proofkit

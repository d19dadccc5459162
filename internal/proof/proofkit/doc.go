// Package proofkit has what the commands chaos and load share: readings of /proc, retries, and the
// environment of a daemon. It knows nothing else of Cuelight. Processes are started with childproc.
package proofkit

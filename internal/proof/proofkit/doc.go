// Package proofkit has what the commands chaos, load and bench share: what processes use, child
// processes, retries, and generated clips. Processes are started with childproc.
package proofkit

// Package sandbox starts programs that read untrusted files, with as little in
// their reach as this host can take away.
//
// [Policy.Wrap] changes a command so that this program's own executable is
// started in its place. This package's init recognises that, confines the
// process, and executes the command in it: process id, process group, session,
// file descriptors and control group stay as they are. Any program that imports
// this package can do so; its main function need not know. Nothing else of the
// importing program has run in the child by then, save the initialisation of
// packages that come before.
//
// On Linux the layers are, in this order: lower priority, no_new_privs, Landlock,
// an account without privileges, no capabilities, limits on resources, a seccomp
// filter. Elsewhere there is none, and Wrap changes nothing.
package sandbox

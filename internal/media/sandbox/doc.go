// Package sandbox starts programs that read untrusted files, with as few rights as the host can
// restrict them to.
//
// Call [Policy.Wrap] on a command before starting it. The command then starts this program's own
// executable, whose init function in this package confines the process and executes the wrapped
// program in it. Process id, process group, session, file descriptors and control group stay the
// same. The main function of the importing program need not know about it: in the child nothing
// runs before this init but the initialisation of packages that come before.
//
// A confined program has no network. [Policy.Sockets] offers it connections to this process instead.
//
// On Linux the layers are, in this order: a lower priority, no_new_privs, Landlock, an account
// without privileges, no capabilities, resource limits, a seccomp filter. [Layers] says which of
// them the host offers. On other systems there is none, and Wrap changes nothing.
package sandbox

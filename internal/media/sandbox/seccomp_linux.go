//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hasFilter = true

// deniedCalls are the system calls by which a program reaches other processes, the network, or
// parts of the kernel that a decoder does not need. All others are allowed: nobody knows which of
// them a codec, a C library or a driver makes.
var deniedCalls = append([]int{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_KCMP, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	unix.SYS_SETSID, unix.SYS_SETPGID, // the rest of its process group is killed after it
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT,
	unix.SYS_OPEN_TREE, unix.SYS_FSOPEN,
	unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_MKNODAT,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME,
	unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP, unix.SYS_PERSONALITY,
	// Objects of System V and POSIX IPC stay after their program, and all programs of a user share them.
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY,
	unix.SYS_MQ_GETSETATTR,
}, archDeniedCalls...)

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// The offsets in struct seccomp_data, the input of a filter. argOffset is that of the lower half of
// the first argument, since both processors are little-endian.
const (
	callOffset = 0
	archOffset = 4
	argOffset  = 16
)

const (
	allow = unix.SECCOMP_RET_ALLOW
	deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// noSuchCall makes C libraries use the older call, whose flags a filter can see.
	noSuchCall = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(test uint16, value uint32, then, otherwise uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jt: then, Jf: otherwise}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// filter returns the program that decides about each system call of the process. If Landlock keeps
// it from sending signals to other processes, which is landlockScoped, the filter need not.
//
// With offerSockets, socket(AF_INET, SOCK_STREAM) is left to the parent, which answers with one end of
// a socket pair, and connect succeeds without doing anything: such a socket is connected.
func filter(pid int, landlockScoped, offerSockets bool) []unix.SockFilter {
	f := []unix.SockFilter{
		// For another architecture, the numbers mean other calls.
		load(archOffset), jump(unix.BPF_JEQ, arch, 1, 0), ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(callOffset), jump(unix.BPF_JGE, foreignCalls, 0, 1), ret(deny),
	}
	if offerSockets {
		f = append(f, jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 7),
			load(argOffset), jump(unix.BPF_JEQ, unix.AF_INET, 0, 4),
			load(argOffset+8), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketTypes},
			jump(unix.BPF_JEQ, unix.SOCK_STREAM, 0, 1), ret(unix.SECCOMP_RET_USER_NOTIF), ret(deny))
		f = append(f, jump(unix.BPF_JEQ, unix.SYS_CONNECT, 0, 1), ret(unix.SECCOMP_RET_ERRNO))
	}
	for _, call := range deniedCalls {
		f = append(f, jump(unix.BPF_JEQ, uint32(call), 0, 1), ret(deny))
	}
	f = append(f, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), ret(noSuchCall))
	f = append(f, jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(argOffset), jump(unix.BPF_JSET, namespaces, 0, 1), ret(deny), load(callOffset))
	// Limits and priorities of other processes.
	f = append(f, allowOnly(unix.SYS_PRLIMIT64, 0, 0, uint32(pid))...)
	for _, call := range []int{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET} {
		f = append(f, denyWhere(call, 0, prioUser, ioprioUser)...)
		f = append(f, allowOnly(call, 1, 0, uint32(pid))...)
	}
	if !landlockScoped {
		f = append(f, allowOnly(unix.SYS_KILL, 0, 0, uint32(pid))...)
		for _, call := range []int{unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO} {
			f = append(f, allowOnly(call, 0, uint32(pid))...)
		}
		f = append(f, jump(unix.BPF_JEQ, unix.SYS_TKILL, 0, 1), ret(deny))
		// A file can send its owner a signal when it is ready.
		f = append(f, denyWhere(unix.SYS_FCNTL, 1, unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG)...)
	}
	// Input that a terminal would take for the user's.
	f = append(f, denyWhere(unix.SYS_IOCTL, 1, unix.TIOCSTI, tiocLinux)...)
	return append(f, ret(allow))
}

// socketTypes masks the type of a socket in an argument that has flags, too.
const socketTypes = 0xf

const (
	// tiocLinux is TIOCLINUX, which can paste into a console.
	tiocLinux = 0x541C
	// prioUser is PRIO_USER and ioprioUser IOPRIO_WHO_USER: all processes of a user. Each has no
	// meaning for the call of the other.
	prioUser, ioprioUser = 2, 3
)

// allowOnly denies a call unless its argument arg, counted from 0, is one of the values.
func allowOnly(call int, arg uint32, values ...uint32) []unix.SockFilter {
	n := uint8(len(values))
	f := []unix.SockFilter{jump(unix.BPF_JEQ, uint32(call), 0, n+3), load(argOffset + 8*arg)}
	for i, v := range values {
		f = append(f, jump(unix.BPF_JEQ, v, n-uint8(i), 0))
	}
	return append(f, ret(deny), load(callOffset))
}

// denyWhere denies a call whose argument arg, counted from 0, is one of the values.
func denyWhere(call int, arg uint32, values ...uint32) []unix.SockFilter {
	n := uint8(len(values))
	f := []unix.SockFilter{jump(unix.BPF_JEQ, uint32(call), 0, n+3), load(argOffset + 8*arg)}
	for i, v := range values[:n-1] {
		f = append(f, jump(unix.BPF_JEQ, v, n-uint8(i)-1, 0))
	}
	return append(f, jump(unix.BPF_JEQ, values[n-1], 0, 1), ret(deny), load(callOffset))
}

// restrictCalls installs the filter. A host without seccomp goes on: Wrap has refused the start if
// the layer is required.
func (p Policy) restrictCalls() error {
	program := filter(os.Getpid(), landlockABI() >= 6, p.Control != 0)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	flags := uintptr(0)
	if p.Control != 0 {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	// Without the flag, kernels before 5.16 turn on mitigations that slow the whole process down.
	listener, err := setFilter(flags|unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog)
	if err != nil {
		listener, err = setFilter(flags, &prog)
	}
	if p.Control != 0 {
		if err == nil {
			err = sendListener(p.Control, listener)
		}
		return err
	}
	if !p.Require && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)) {
		return nil
	}
	return err
}

// setFilter returns the listener of the filter, if the flags ask for one.
func setFilter(flags uintptr, prog *unix.SockFprog) (listener int, err error) {
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

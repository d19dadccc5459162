//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sockets makes every TCP socket for IPv4 that the program creates a connection to the returned
// listener, whatever address it connects to. It gets no socket of its own, and can reach nothing else.
// Call it before Wrap, and close the listener when the program has ended. [CheckSockets] says
// whether the host can do this.
func (p *Policy) Sockets(cmd *exec.Cmd) (net.Listener, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("offer sockets: %w", err)
	}
	l := &sockets{
		child: os.NewFile(uintptr(pair[1]), "control"), conns: make(chan net.Conn), closed: make(chan struct{}),
		open: make(chan struct{}, maxSockets),
	}
	own := os.NewFile(uintptr(pair[0]), "control")
	defer own.Close()
	control, err := net.FileConn(own)
	if err == nil {
		l.stop, l.stopped, err = os.Pipe()
	}
	if err != nil {
		l.child.Close()
		return nil, fmt.Errorf("offer sockets: %w", err)
	}
	l.control = control.(*net.UnixConn)
	cmd.ExtraFiles = append(cmd.ExtraFiles, l.child)
	p.Control = firstExtraFD + len(cmd.ExtraFiles) - 1
	l.running.Go(l.run)
	return l, nil
}

// maxSockets is how many connections a program may have at once. Each is an open file of this process,
// too. A program that wants more waits until one ends.
const maxSockets = 16

// firstExtraFD is the number of the first extra open file of a child.
const firstExtraFD = 3

// sockets are the connections of one program.
type sockets struct {
	control       *net.UnixConn // receives the listener of the socket calls
	child         *os.File      // the other end, for the child
	stop, stopped *os.File      // a pipe; stopped is closed to end run
	conns         chan net.Conn
	open          chan struct{} // has a value for each connection
	closed        chan struct{}
	closing       sync.Once
	running       sync.WaitGroup
}

// Accept returns the next connection.
func (l *sockets) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr returns an address for programs to connect to. Any other leads here, too.
func (l *sockets) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Close ends Accept and offers no further sockets.
func (l *sockets) Close() error {
	l.closing.Do(func() {
		close(l.closed)
		l.stopped.Close()
		l.control.Close()
		l.child.Close()
		l.running.Wait()
		l.stop.Close()
	})
	return nil
}

// run answers the socket calls of the program until it has ended.
func (l *sockets) run() {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := l.control.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return
	}
	listener := os.NewFile(uintptr(fds[0]), "seccomp")
	defer listener.Close()
	unix.CloseOnExec(fds[0])
	for {
		poll := []unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}, {Fd: int32(l.stop.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) || poll[1].Revents != 0 ||
			poll[0].Revents&^unix.POLLIN != 0 {
			return
		}
		if poll[0].Revents&unix.POLLIN != 0 {
			l.answer(fds[0])
		}
	}
}

// These are the structures of seccomp_unotify(2).
type (
	notification struct {
		id         uint64
		pid, flags uint32
		call       int32
		arch       uint32
		pointer    uint64
		args       [6]uint64
	}
	notificationAnswer struct {
		id    uint64
		value int64
		error int32
		flags uint32
	}
	addedFile struct {
		id               uint64
		flags, from      uint32
		to, newFileFlags uint32
	}
)

// answer gives the program one end of a new socket pair as its socket. It uses nothing that the
// program could change after the call.
func (l *sockets) answer(listener int) {
	var n notification
	if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != nil {
		return // the program was killed in the call
	}
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return // the program has ended
	}
	conn := l.give(listener, n)
	if conn == nil {
		<-l.open
		return
	}
	l.deliver(&socket{Conn: conn, closed: sync.OnceFunc(func() { <-l.open })})
}

// give answers a call, and returns this process' end of the socket. It returns nil if the program has
// none: a signal may have interrupted the call, which then arrives again.
func (l *sockets) give(listener int, n notification) net.Conn {
	reply := notificationAnswer{id: n.id, error: -int32(unix.ENETUNREACH)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|int(n.args[1])&unix.SOCK_NONBLOCK, 0)
	var conn net.Conn
	if err == nil {
		own := os.NewFile(uintptr(pair[0]), "socket")
		conn, err = net.FileConn(own)
		own.Close()
		add := addedFile{id: n.id, from: uint32(pair[1]), newFileFlags: unix.O_CLOEXEC}
		if err == nil {
			var fd int
			if fd, err = ioctlValue(listener, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&add)); err == nil {
				reply.value, reply.error = int64(fd), 0
			}
		}
		unix.Close(pair[1])
	}
	if sendErr := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&reply)); err == nil {
		err = sendErr
	}
	if err != nil && conn != nil {
		conn.Close()
		return nil
	}
	return conn
}

// socket is a connection that is counted.
type socket struct {
	net.Conn
	closed func()
}

// Close closes the connection.
func (s *socket) Close() error {
	defer s.closed()
	return s.Conn.Close()
}

func (l *sockets) deliver(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		conn.Close()
	}
}

func ioctl(fd int, request uint, argument unsafe.Pointer) error {
	_, err := ioctlValue(fd, request, argument)
	return err
}

func ioctlValue(fd int, request uint, argument unsafe.Pointer) (int, error) {
	value, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument))
	if errno != 0 {
		return 0, errno
	}
	return int(value), nil
}

// sendListener sends the listener of the socket calls to the parent.
func sendListener(control, listener int) error {
	err := unix.Sendmsg(control, []byte{0}, unix.UnixRights(listener), nil, 0)
	return errors.Join(err, unix.Close(listener), unix.Close(control))
}

// socketTest is the first argument of a process that tries Policy.Sockets for CheckSockets.
const socketTest = "cuelight-sandbox-socket-test"

func init() {
	if len(os.Args) != 1 || os.Args[0] != socketTest {
		return
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 1, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		_, err = unix.Write(fd, []byte{1})
	}
	if err != nil {
		os.Exit(failureCode)
	}
	os.Exit(0)
}

// CheckSockets returns an error if this host cannot do what Policy.Sockets promises. It tries once.
var CheckSockets = sync.OnceValue(func() error {
	p, cmd := Policy{}, &exec.Cmd{Path: "/proc/self/exe", Args: []string{socketTest}}
	l, err := p.Sockets(cmd)
	if err == nil {
		err = p.Wrap(cmd)
	}
	if err != nil {
		return err
	}
	received := make(chan bool, 1)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			received <- false
			return
		}
		defer conn.Close()
		n, err := conn.Read(make([]byte, 1))
		received <- err == nil && n == 1
	})
	err = cmd.Run()
	if err == nil && !<-received {
		err = errors.New("nothing arrived")
	}
	l.Close()
	accepting.Wait()
	if err != nil {
		return fmt.Errorf("this host does not let seccomp offer sockets to programs: %w", err)
	}
	return nil
})

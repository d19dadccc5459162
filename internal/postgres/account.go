package postgres

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// Account is the user that runs the server: the process's own user, or a system
// user when the process is root, because PostgreSQL refuses to run as root.
type Account struct {
	Name string
	UID  int
	cred *syscall.Credential // nil: no change of user
}

// systemUser runs the server when the process is root.
const systemUser = "postgres"

// LookupAccount returns the user that would run a new server: when the process is root,
// the system user "postgres", or [ErrAccount] if there is no such user; otherwise the
// process's own user.
func LookupAccount() (Account, error) {
	if uid := os.Geteuid(); uid != 0 {
		a := Account{Name: strconv.Itoa(uid), UID: uid}
		if u, err := user.LookupId(a.Name); err == nil {
			a.Name = u.Username
		}
		return a, nil
	}
	return systemAccount(systemUser)
}

func systemAccount(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, &Error{
			Text: fmt.Sprintf("PostgreSQL refuses to run as root, and there is no user %q to run it as", name),
			Hint: "create it: useradd --system --user-group --no-create-home --shell /usr/sbin/nologin " + name,
			Err:  ErrAccount,
		}
	}
	return accountOf(u)
}

// accountByID is the account for an existing cluster, which only its owner can
// open.
func accountByID(uid int) (Account, error) {
	if uid == 0 {
		return Account{}, &Error{
			Text: "the database belongs to root, and PostgreSQL refuses to run as root",
			Hint: "give the directory to the user that created it (chown -R)",
			Err:  ErrAccount,
		}
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return Account{}, &Error{
			Text: fmt.Sprintf("the database belongs to user id %d, which does not exist on this machine", uid),
			Hint: "give the directory to the user that shall run it (chown -R)",
			Err:  ErrAccount,
		}
	}
	return accountOf(u)
}

func accountOf(u *user.User) (Account, error) {
	a := Account{Name: u.Username}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return a, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return a, fmt.Errorf("user %s: %w", u.Username, err)
	}
	a.UID = int(uid)
	if a.UID == os.Geteuid() {
		return a, nil
	}
	a.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	ids, err := u.GroupIds()
	if err != nil {
		return a, fmt.Errorf("groups of user %s: %w", u.Username, err)
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			a.cred.Groups = append(a.cred.Groups, uint32(n))
		}
	}
	return a, nil
}

// Command is exec.Command for this account. The program gets a session, so that a
// Ctrl-C in the terminal does not reach it, and little of this process's
// environment: PG* variables would change the server's behaviour, and others may
// contain secrets.
func (a Account) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = "/" // the account may be unable to enter the current directory
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: a.cred}
	cmd.Env = []string{"LC_ALL=" + locale()}
	for _, name := range []string{"PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

// Own makes the account the owner of one file or directory, not of its contents.
func (a Account) Own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Lchown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// CanEnter reports whether the account may enter dir. It tries, because mode bits
// do not decide alone (access lists, security modules, unusual file systems).
func (a Account) CanEnter(b Binaries, dir string) bool {
	if a.cred == nil {
		return true // an error would show where dir is used
	}
	cmd := a.Command(b.Path("postgres"), "--version")
	cmd.Dir = dir
	return cmd.Run() == nil
}

package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// Account is who runs the server: the process's own user, or, because the
// server refuses to be root, a system user when the process is root.
type Account struct {
	Name string
	UID  int
	cred *syscall.Credential // nil: no change of user
}

// LookupAccount tells who would run a new server. Without root that is the
// process's own user and name does not matter; with root it is the named system
// user, "postgres" if name is empty. No such user is [ErrAccount].
func LookupAccount(name string) (Account, error) {
	if uid := os.Geteuid(); uid != 0 {
		a := Account{Name: strconv.Itoa(uid), UID: uid}
		if u, err := user.LookupId(a.Name); err == nil {
			a.Name = u.Username
		}
		return a, nil
	}
	if name == "" {
		name = "postgres"
	}
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, &Error{
			Problem: fmt.Sprintf("PostgreSQL refuses to run as root, and there is no user %q to run it as", name),
			Advice:  "create it: useradd --system --user-group --no-create-home --shell /usr/sbin/nologin " + name,
			Err:     ErrAccount,
		}
	}
	return accountOf(u)
}

// accountByID is the account for a cluster that exists already: only its owner
// can open it.
func accountByID(uid int) (Account, error) {
	if uid == 0 {
		return Account{}, &Error{
			Problem: "the database belongs to root, as whom PostgreSQL refuses to run",
			Advice:  "give the directory back to the user it was made by (chown -R)",
			Err:     ErrAccount,
		}
	}
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return Account{}, &Error{
			Problem: fmt.Sprintf("the database belongs to user id %d, which no user on this machine has", uid),
			Advice:  "give the directory to the user that is to run it (chown -R)",
			Err:     ErrAccount,
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

// Command is exec.CommandContext for this account. The program gets a session
// of its own, so that a Ctrl-C in the terminal does not reach it, and almost
// nothing of our environment: PG* variables would change what the server does,
// and the secrets in the others are none of its business.
func (a Account) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/" // ours may be one that the account cannot enter
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: a.cred}
	cmd.Env = []string{"LC_ALL=" + locale()}
	for _, name := range []string{"PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

// Own gives one file or directory, not what is inside, to the account.
func (a Account) Own(path string) error {
	if a.cred == nil {
		return nil
	}
	return os.Lchown(path, int(a.cred.Uid), int(a.cred.Gid))
}

// CanEnter reports whether the account may enter dir, by trying it: mode bits
// are not the whole truth (access lists, security modules, odd file systems).
func (a Account) CanEnter(b Binaries, dir string) bool {
	if a.cred == nil {
		return true // whatever is wrong will show where dir is used
	}
	cmd := a.Command(context.Background(), b.Path("postgres"), "--version")
	cmd.Dir = dir
	return cmd.Run() == nil
}

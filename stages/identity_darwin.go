package stages

import "golang.org/x/sys/unix"

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

func pidNamespace() string { return "" }

func processStart(int) string { return "" }

// isZombie is false: Cuelight reads the state of a process on Linux only.
func isZombie(int) bool { return false }

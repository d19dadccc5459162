package result

import "testing"

func TestFindMount_ReturnsTheNearestMount(t *testing.T) {
	t.Parallel()
	const table = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
25 22 0:22 / /dev/shm rw - tmpfs tmpfs rw,size=1
30 22 0:30 / /mnt/my\040disk rw master:1 propagate_from:2 - btrfs /dev/my\040disk rw
31 30 0:31 / /mnt/my\040disk rw - xfs /dev/sdb rw
a line of something else
`
	for dir, want := range map[string]string{
		"/":                "ext4 on /dev/vda",
		"/var/tmp":         "ext4 on /dev/vda",
		"/dev/shm":         "tmpfs on tmpfs",
		"/dev/shm/a/b":     "tmpfs on tmpfs",
		"/dev/shmem":       "ext4 on /dev/vda",
		"/mnt/my disk/sub": "xfs on /dev/sdb",
	} {
		if got := findMount([]byte(table), dir); got != want {
			t.Errorf("%s is on %q, want %q", dir, got, want)
		}
	}
}

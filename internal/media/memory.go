package media

import "sync"

// minMemory is the lowest default, however small the host is.
const minMemory = 1 << 30

// MemoryLimit is how many bytes a child may have resident; 0 means no limit.
func (t Tools) MemoryLimit() int64 {
	switch {
	case t.Memory < 0:
		return 0
	case t.Memory > 0:
		return t.Memory
	}
	return defaultMemory()
}

// HostMemory is the memory in bytes of this host, or of this process's control group if that is less; 0 if
// it is not known here.
func HostMemory() int64 { return availableMemory() }

// defaultMemory leaves the other half to the database, the daemon and other children.
// The largest permitted picture fits.
var defaultMemory = sync.OnceValue(func() int64 {
	all := availableMemory()
	if all <= 0 {
		return 0
	}
	return max(all/2, minMemory)
})

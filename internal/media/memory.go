package media

import "sync"

// minMemory is what a child may have however small the host is.
const minMemory = 1 << 30

// MemoryLimit is how much a child may have resident, in bytes; 0 where nothing
// bounds it.
func (t Tools) MemoryLimit() int64 {
	switch {
	case t.Memory < 0:
		return 0
	case t.Memory > 0:
		return t.Memory
	}
	return defaultMemory()
}

// defaultMemory leaves the other half to the database, the daemon and the children
// beside: a picture of the most pixels allowed fits in, a bomb does not take the
// host with it.
var defaultMemory = sync.OnceValue(func() int64 {
	all := availableMemory()
	if all <= 0 {
		return 0
	}
	return max(all/2, minMemory)
})

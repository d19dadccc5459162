package cuelight

import (
	"sync"

	"github.com/cuelight/cuelight/store"
)

// numbers are the numbers of the tasks being worked on, by their ids: an Event
// has the id alone. They are in many maps, each with its lock, so that measuring
// does not become what is measured.
type numbers struct{ shards [64]shard }

type shard struct {
	mu sync.Mutex
	of map[store.ID]int64
	_  [48]byte // its neighbours are on other cache lines
}

func newNumbers() *numbers {
	n := &numbers{}
	for i := range n.shards {
		n.shards[i].of = make(map[store.ID]int64)
	}
	return n
}

// shard goes by the end of an id, which is random.
func (n *numbers) shard(id store.ID) *shard { return &n.shards[id[15]%64] }

func (n *numbers) put(id store.ID, task int64) {
	s := n.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[id] = task
}

func (n *numbers) get(id store.ID) (int64, bool) {
	s := n.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	task, ok := s.of[id]
	return task, ok
}

func (n *numbers) drop(id store.ID) {
	s := n.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

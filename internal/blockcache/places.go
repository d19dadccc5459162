package blockcache

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// reserve finds a place for a block in the file.
func (c *Cache) reserve(b *block, size, blockSize int64) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blockSize = blockSize
	if c.isFull() {
		c.evict()
	}
	for len(c.free) == 0 {
		err := c.grow(c.dir, blockSize)
		if err == nil {
			break
		}
		if c.evict() {
			continue
		}
		if c.writing == 0 {
			return nil, err
		}
		c.written.Wait() // then there is one to evict
	}
	if c.file == nil {
		if err := c.create(); err != nil {
			return nil, err
		}
	}
	if len(c.free) > 0 { // the lowest, because the file shrinks from its end
		b.place = slices.Min(c.free)
		c.free = slices.DeleteFunc(c.free, func(place int64) bool { return place == b.place })
	} else {
		b.place = c.places
		c.places++
	}
	b.size = size
	c.writing++
	return c.file, nil
}

// evict removes the least recently used block that nobody reads. The lock is held.
func (c *Cache) evict() bool {
	for e := c.recent.Back(); e != nil; e = e.Prev() {
		b := e.Value.(*block)
		if b.uses > 0 {
			continue
		}
		c.remove(b)
		return true
	}
	return false
}

func (c *Cache) remove(b *block) {
	c.recent.Remove(b.element)
	delete(c.blocks, b.id)
	c.free = append(c.free, b.place)
}

// maxPlaces is how many places are within the limit. The lock is held, and blockSize is known.
func (c *Cache) maxPlaces() int64 { return c.limit / c.blockSize }

// isFull reports whether every place within the limit has a block. The lock is held.
func (c *Cache) isFull() bool {
	within := func(place int64) bool { return place < c.maxPlaces() }
	return !within(c.places) && !slices.ContainsFunc(c.free, within)
}

// shrink removes a block that nobody reads if its place is beyond the limit. The lock is held.
func (c *Cache) shrink(b *block) {
	if b.uses == 0 && b.element != nil && b.place >= c.maxPlaces() {
		c.remove(b)
		c.truncate()
	}
}

// truncate gives the disk back the places beyond the limit that are at the end of the file and have no
// block. The lock is held.
func (c *Cache) truncate() {
	places := c.places
	for places > c.maxPlaces() && slices.Contains(c.free, places-1) {
		places--
	}
	if places == c.places || c.file.Truncate(places*c.blockSize) != nil {
		return // the next call tries again
	}
	c.places = places
	c.free = slices.DeleteFunc(c.free, func(place int64) bool { return place >= places })
}

func (c *Cache) create() error {
	file, err := os.CreateTemp(c.dir, "blocks-")
	if err != nil {
		return fmt.Errorf("create block cache: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("create block cache: %w", errors.Join(err, file.Close()))
	}
	c.file = file
	return nil
}

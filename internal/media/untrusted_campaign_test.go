package media

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// mediaDir is a directory of real files, good and broken: $CUELIGHT_TEST_MEDIA, or one
// next to the checkout.
func mediaDir() string { return cmp.Or(os.Getenv("CUELIGHT_TEST_MEDIA"), "../../../shared/media") }

// The campaign takes some fifteen minutes. CUELIGHT_TEST_CAMPAIGN=1 runs it.
func TestCheckUntrusted_Campaign(t *testing.T) {
	if os.Getenv("CUELIGHT_TEST_CAMPAIGN") == "" {
		t.Skip("CUELIGHT_TEST_CAMPAIGN is not set")
	}
	c := &campaign{}
	t.Run("generated sources", func(t *testing.T) {
		for _, k := range append(append(pictureKinds(), timingKinds()...), streamKinds()...) {
			c.honest(t, k.name, transcodeHonestly(t, makeClip(t, k.file, k.args)))
		}
		c.forge(t, "generated", makeHonest(t))
	})
	t.Run("real files", func(t *testing.T) {
		found, _ := filepath.Glob(filepath.Join(mediaDir(), "*"))
		for _, file := range found {
			t.Run(filepath.Base(file), func(t *testing.T) { c.checkReal(t, file) })
		}
	})
	t.Logf("honest: %d of %d refused; forged: %d of %d refused", c.honestRefused, c.honestRuns, c.forgedRefused,
		c.forgedRuns)
	for _, line := range c.lines {
		t.Log(line)
	}
}

// checkReal transcodes a real file with the daemon's preset, and forges it if it is
// long and large enough to show a difference.
func (c *campaign) checkReal(t *testing.T, file string) {
	t.Helper()
	src, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := untrustedTools.Probe(t.Context(), src)
	if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(file)
	before := processorTime()
	h := honest{src: src, dir: t.TempDir(), info: info, rungs: Ladder(info)}
	tools := Tools{Cache: untrustedTools.Cache}
	if h.out, err = tools.Transcode(t.Context(), src, info, h.rungs, h.dir, nil); err != nil {
		t.Logf("%s: %v", name, err)
		return
	}
	encode := processorTime() - before
	check := c.honest(t, name, h)
	t.Logf("%-36s %6.1f s; encode %7.2f s, check %5.2f s of processor time: %.1f %%", name, info.Duration,
		encode.Seconds(), check.Seconds(), 100*check.Seconds()/encode.Seconds())
	if info.Video != nil && info.Duration >= 4 && info.Duration < 100 && min(h.rungs[0].Width, h.rungs[0].Height) > 90 {
		c.forge(t, name, h)
	}
}

// campaign counts the verdicts. It runs one check at a time.
type campaign struct {
	honestRuns, honestRefused, forgedRuns, forgedRefused int
	lines                                                []string
	isSoft, isSilent, isStill                            bool // of the last honest source
}

// honest checks an honest output, and returns its processor time.
func (c *campaign) honest(t *testing.T, name string, h honest) time.Duration {
	t.Helper()
	var used time.Duration
	c.isSoft, c.isSilent, c.isStill = false, false, false
	const runs = 3 // at other moments
	for range runs {
		dir := deliver(t, h.dir, h.info, h.rungs)
		tools, log := untrustedTools, new(comparisons)
		tools.compared = log.add
		before := processorTime()
		_, err := tools.CheckUntrusted(t.Context(), h.src, h.info, h.rungs, dir, h.out)
		used += processorTime() - before
		c.honestRuns++
		if err != nil {
			c.honestRefused++
			t.Errorf("%s: an honest output: %v", name, err)
		}
		isSoft, isSilent, isStill := log.lacks(h.rungs[0].Name)
		c.isSoft, c.isSilent, c.isStill = c.isSoft || isSoft, c.isSilent || isSilent, c.isStill || isStill
		c.lines = append(c.lines, log.summary("honest "+name))
	}
	return used / runs
}

func (c *campaign) forge(t *testing.T, name string, h honest) {
	t.Helper()
	for _, f := range forgeries {
		forgesSound := strings.Contains(f.args, "-af ") || strings.Contains(f.args, "-map 1:a")
		forgesTime := f.name == "shifted video" || f.name == "frozen video"
		if forgesSound && c.isSilent || f.word == "scaled up" && c.isSoft || forgesTime && c.isStill {
			c.lines = append(c.lines, "not forged "+name+", "+f.name+": the source has too little to tell")
			continue
		}
		dir, claimed := h.forge(t, f.args)
		tools, log := untrustedTools, new(comparisons)
		tools.compared = log.add
		_, err := tools.CheckUntrusted(t.Context(), h.src, h.info, h.rungs, dir, claimed)
		c.forgedRuns++
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			c.forgedRefused++
		} else {
			t.Errorf("%s, %s: %v; want a refusal", name, f.name, err)
		}
		c.lines = append(c.lines, log.summary("forged "+name+", "+f.name))
	}
}

// comparisons keeps the measures farthest from those of an honest output.
type comparisons struct {
	mu   sync.Mutex
	list []comparison
}

func (c *comparisons) add(one comparison) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, one)
}

// lacks reports whether the source has too little detail at a rung's size or too
// little motion at one of the moments, and whether it has too little sound at all.
func (c *comparisons) lacks(rung string) (detail, sound, motion bool) {
	sound = true
	for _, one := range c.list {
		detail = detail || one.rendition == rung && one.detailLevel < 1.25*minDetailLevel
		motion = motion || one.rendition == rung && one.motion < 1.25*minMotion
		if one.sound > quietSound {
			sound = false
		}
	}
	return detail, sound, motion
}

func (c *comparisons) summary(name string) string {
	similar, colour, motion, fine, sound := 1.0, 0.0, 1.0, 1.0, 1.0
	for _, one := range c.list {
		if one.sound > quietSound {
			sound = min(sound, one.soundMatch)
		}
		if one.similarity == 0 {
			continue
		}
		similar, colour = min(similar, one.similarity), max(colour, one.colour)
		if one.motion >= minMotion {
			motion = min(motion, one.motionMatch)
		}
		if one.detailLevel >= minDetailLevel {
			fine = min(fine, one.detail)
		}
	}
	return strings.Join([]string{
		name + ": similarity " + fmtFloat(similar), "colour " + fmtFloat(colour), "motion " + fmtFloat(motion),
		"detail " + fmtFloat(fine), "sound " + fmtFloat(sound),
	}, ", ")
}

// processorTime is that of this process and of the children that have ended.
func processorTime() time.Duration {
	sum := time.Duration(0)
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(of, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

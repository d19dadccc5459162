package media

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	// maxInitBytes is far above an initialization segment's size, which is about
	// a kilobyte.
	maxInitBytes = 64 << 10
	// segmentOverhead is room for a segment's index, of 16 bytes per frame, and
	// for what the encoder exceeds its rate by in very small pictures.
	segmentOverhead = 64 << 10
	// rateSlack is how far an encoder may exceed the rung's bitrate.
	rateSlack = 2.0
)

// ExpectedFile reports whether a worker may deliver a file of this name for this
// ladder: "720p/init.mp4" or "720p/seg-00012.m4s". Names are relative and
// slash-separated. Playlists, manifests and storyboards are not expected,
// because the coordinator makes them from the delivered segments.
func ExpectedFile(info *Info, rungs []Rung, name string) bool {
	return MaxFileBytes(info, rungs, name) > 0
}

// MaxFileBytes is the size limit of a delivered file, and 0 for a name that is not
// an [ExpectedFile].
func MaxFileBytes(info *Info, rungs []Rung, name string) int64 {
	dir, file, _ := strings.Cut(name, "/") // not package path, which would clean the name
	jobs := allJobs(info, rungs)
	i := slices.IndexFunc(jobs, func(j renditionJob) bool { return j.dir == dir && isPlainName(dir) })
	n := segmentNumber(file)
	switch {
	case i < 0:
		return 0
	case file == initName:
		return maxInitBytes
	case n < 0 || n >= maxSegments(info):
		return 0
	}
	// A segment ends at the first frame after six seconds, which may be two seconds late; the last may have half a second more.
	return bytesAt(jobs[i].rung, segmentSeconds+2*repeatSeconds) + segmentOverhead
}

// MaxTotalBytes is the size limit of all files that a worker may deliver for this
// ladder: twice its highest bitrates over the duration, and some room for each file.
func MaxTotalBytes(info *Info, rungs []Rung) int64 {
	total := int64(0)
	for _, j := range allJobs(info, rungs) {
		total += bytesAt(j.rung, planTiming(info).maxSeconds) + maxInitBytes + int64(maxSegments(info))*segmentOverhead
	}
	return total
}

// bytesAt is the limit for so many seconds of a rendition. An encoder may fill its
// buffer, of two seconds, in addition.
func bytesAt(r Rung, seconds float64) int64 {
	return int64(rateSlack * float64(r.VideoBitrate+r.AudioBitrate) / 8 * (seconds + 2))
}

// maxSegments is the highest number of segments. One starts at the first frame after each multiple of their duration.
func maxSegments(info *Info) int { return int(planTiming(info).maxSeconds/segmentSeconds) + 2 }

func allJobs(info *Info, rungs []Rung) []renditionJob {
	video, audio := renditionJobs(info, rungs)
	if info.Video == nil {
		video = nil
	}
	return slices.Concat(video, audio)
}

func renditionDirs(jobs []renditionJob) []string {
	var dirs []string
	for _, j := range jobs {
		dirs = append(dirs, j.dir)
	}
	return dirs
}

// segmentNumber is the number in a segment's name, or -1 for another name.
func segmentNumber(file string) int {
	digits := strings.TrimSuffix(strings.TrimPrefix(file, "seg-"), ".m4s")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || fmt.Sprintf(segmentPattern, n) != file {
		return -1
	}
	return int(n)
}

// delivery is what a worker delivered: the numbers of the segments of each rendition
// directory.
type delivery map[string][]int

// expectation says which files a worker may deliver.
type expectation struct {
	dirs     []string
	first    int                     // number of the first segment
	maxBytes func(name string) int64 // 0 for a name that is not expected
}

func expectAll(info *Info, rungs []Rung) expectation {
	return expectation{dirs: renditionDirs(allJobs(info, rungs)), maxBytes: func(name string) int64 {
		return MaxFileBytes(info, rungs, name)
	}}
}

// readDelivery lists the directory of a worker's files. It follows no links, and
// refuses every entry that is not expected. It removes the files of an earlier
// check that was interrupted: no worker may deliver these names.
func readDelivery(dir string, expected expectation) (delivery, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := removeOwnFiles(root, expected.dirs); err != nil {
		return nil, err
	}
	inits, found := map[string]bool{}, delivery{}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() && slices.Contains(expected.dirs, name) {
			return nil
		}
		if err := checkDelivered(entry, name, expected.maxBytes(name)); err != nil {
			return err
		}
		folder, file, _ := strings.Cut(name, "/")
		if file == initName {
			inits[folder] = true
		} else {
			found[folder] = append(found[folder], segmentNumber(file))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, folder := range expected.dirs {
		if err := checkComplete(folder, inits[folder], found[folder], expected.first); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// checkComplete checks that a rendition has a header and all segments, or nothing.
func checkComplete(folder string, hasInit bool, segments []int, first int) error {
	switch n := len(segments); {
	case n == 0 && !hasInit:
	case n == 0:
		return refuse(folder, "it has no segments")
	case !hasInit:
		return refuse(folder, "its initialization segment is missing")
	case slices.Max(segments) != first+n-1:
		return refuse(folder, "a segment is missing: there are %d, but the last has number %d", n, slices.Max(segments))
	}
	return nil
}

// removeOwnFiles removes playlists and temporary files.
func removeOwnFiles(root *os.Root, dirs []string) error {
	for _, folder := range append([]string{"."}, dirs...) {
		entries, err := fs.ReadDir(root.FS(), folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil // it is not a directory, which readDelivery refuses
		}
		for _, entry := range entries {
			name := entry.Name()
			if name[0] != '.' && (name != playlistName || folder == ".") {
				continue
			}
			if err := root.RemoveAll(path.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDelivered checks the name, type and size of a delivered file.
func checkDelivered(entry fs.DirEntry, name string, limit int64) error {
	if limit == 0 {
		return refuse("", "there is a file or directory that the ladder does not have")
	}
	st, err := entry.Info()
	if err != nil {
		return err
	}
	folder, file, _ := strings.Cut(name, "/")
	switch {
	case !st.Mode().IsRegular() || st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return refuse(folder, "%s is not a plain file", file)
	case st.Size() == 0:
		return refuse(folder, "%s is empty", file)
	case st.Size() > limit:
		return refuse(folder, "%s has %d bytes; the limit is %d", file, st.Size(), limit)
	}
	return nil
}

// RefusedError says that the files which a worker delivered are not a sound
// transcode of the source. All other errors of [Tools.CheckDelivered] are about this
// host, and say nothing about the worker. Match it with [errors.As].
type RefusedError struct {
	// Rendition is the name of the wrong rendition; empty if all are wrong.
	Rendition string
	// Reason is a sentence without a full stop. It has no text of the worker.
	Reason string
}

// Error returns one sentence for the history of the task.
func (e *RefusedError) Error() string {
	if e.Rendition == "" {
		return "refused the worker's output: " + e.Reason
	}
	return "refused the worker's output: rendition " + e.Rendition + ": " + e.Reason
}

func refuse(rendition, format string, args ...any) *RefusedError {
	return &RefusedError{Rendition: rendition, Reason: fmt.Sprintf(format, args...)}
}

// refuseMismatch refuses files that do not match the source, and returns other errors as they are.
func refuseMismatch(err error) error {
	if errors.Is(err, ErrMismatch) {
		return refuseContent("", err)
	}
	return err
}

// refuseContent refuses a rendition for an error that its content caused, and
// returns errors of the file system as they are. The text is reduced to plain
// characters, because the parser may quote names of boxes.
func refuseContent(rendition string, err error) error {
	_, isPath := errors.AsType[*fs.PathError](err)
	_, isErrno := errors.AsType[syscall.Errno](err)
	if isPath || isErrno || err == nil {
		return err
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused
	}
	const maxBytes = 200
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("<>&\"'`\\/", r) {
			return '?'
		}
		return r
	}, err.Error())
	return refuse(rendition, "%s", text[:min(len(text), maxBytes)])
}

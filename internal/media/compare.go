package media

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Pictures are compared as small thumbnails: what an encoder loses at its rate is not in them.
const (
	// smallSide is the longest side of the small pictures, in pixels.
	smallSide = 32
	// minSimilarity is the lowest structural similarity of the small pictures.
	minSimilarity = 0.93
	// maxColourError is the highest mean difference of a colour plane, of 255. minColourShare is the lowest share of
	// the source's colours, which are not compared below minColour, in levels of 255.
	maxColourError, minColourShare, minColour = 12, 0.5, 6.0
)

// errNotDecoded means that a run gave no picture of the source.
var errNotDecoded = errors.New("the source was not decoded")

// pictureCheck compares the pictures of renditions with those of their source at some moments. It finds pictures of
// another time or another video, black ones, and wrong colours; it is blind to the quality, and to what is wrong between
// the moments.
type pictureCheck struct {
	tools       Tools
	source, dir string
	info        *Info
	plan        timing
	cut         *chunkCut // nil for a whole transcode
	found       capabilities
	renditions  []writtenRendition // of one size or more, the largest first
}

// writtenRendition is one rendition and its files.
type writtenRendition struct {
	renditionJob
	files *renditionFiles
}

// run returns an error that wraps ErrMismatch if the pictures differ. What differs after seeking is compared once more,
// with everything before it decoded.
func (p pictureCheck) run(ctx context.Context) error {
	if len(p.renditions) == 0 {
		return nil
	}
	moments, err := p.chooseMoments()
	if err != nil {
		return err
	}
	undecoded := 0
	for _, m := range moments {
		err := p.compareMoment(ctx, m, true)
		if errors.Is(err, ErrMismatch) || errors.Is(err, errNotDecoded) {
			err = p.compareMoment(ctx, m, false)
		}
		if errors.Is(err, errNotDecoded) {
			undecoded++
		} else if err != nil {
			return err
		}
	}
	if undecoded == len(moments) {
		return fmt.Errorf("compare pictures: %w", errNotDecoded)
	}
	return nil
}

// compareMoment decodes a moment of the source and of the renditions, and judges it. Without seek they are decoded apart,
// so that neither can spoil the other.
func (p pictureCheck) compareMoment(ctx context.Context, m moment, seek bool) error {
	work, err := os.MkdirTemp(p.dir, ".compare-")
	if err != nil {
		return spaceError(err)
	}
	defer os.RemoveAll(work)
	r := &momentDecoder{pictureCheck: p, m: m, work: work}
	r.addSource(seek)
	if !seek {
		if err := r.run(ctx); err != nil {
			return err
		}
		r = &momentDecoder{pictureCheck: p, m: m, work: work}
	}
	if err := r.addRenditions(); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	for i := range p.renditions {
		if err := p.comparePicture(m, i, work); err != nil {
			return err
		}
	}
	return nil
}

func (p pictureCheck) comparePicture(m moment, i int, work string) error {
	w, h := p.smallSize()
	want, err1 := readPicture(work, wantedPicture)
	got, err2 := readPicture(work, writtenPicture(i))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	name := p.renditions[i].dir
	switch {
	case len(want) != 3*w*h:
		return errNotDecoded
	case len(got) != 3*w*h:
		return fmt.Errorf("check %s: %w: no picture can be decoded at %.1f s", name, ErrMismatch, m.at)
	}
	if err := newComparison(want, got, w, h).judge(); err != nil {
		return fmt.Errorf("check %s: %w: %w at %.1f s", name, ErrMismatch, err, m.at)
	}
	return nil
}

// readPicture reads a file with a raw picture; one that ffmpeg did not make is empty.
func readPicture(dir, name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// comparison is how a rendition compares with the source at a moment.
type comparison struct {
	similarity  float64 // 1 if equal
	colour      float64 // mean difference of the worst colour plane
	colourLevel float64 // of the source
	colourShare float64
}

func (c comparison) judge() error {
	switch {
	case c.similarity < minSimilarity:
		return fmt.Errorf("the picture is not that of the source (similarity %.2f)", c.similarity)
	case c.colour > maxColourError, c.colourLevel >= minColour && c.colourShare < minColourShare:
		return errors.New("the colours are not those of the source")
	}
	return nil
}

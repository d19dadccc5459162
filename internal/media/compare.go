package media

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The limits are far from what honest output of x264 and of ffmpeg's AAC encoder gave,
// and from what forged output gave. TestCheckUntrusted_Campaign prints both.
const (
	// minSimilarity is the lowest structural similarity of the small pictures.
	minSimilarity = 0.93
	// maxColourError is the highest mean difference of a colour plane, of 255.
	// minColourShare is the lowest share of the source's colours, which are not
	// compared below minColour, in levels of 255.
	maxColourError, minColourShare, minColour = 12, 0.5, 2.0
	// minMotionMatch is the lowest correlation of the differences between the two
	// pictures. Below minMotion, in levels of 255, little moves and nothing is
	// compared.
	minMotionMatch, minMotion = 0.5, 2.0
	// minDetail is the lowest share of the detail that the next lower size cannot
	// have. Below minDetailLevel, in levels of 255, a soft source has so little of
	// it that an honest encoder removes it, too; then nothing is compared.
	minDetail, minDetailLevel = 0.25, 2.0
	// minSoundMatch is the lowest correlation of sound. Below quietSound, of
	// 32768, it is not compared. minSoundShare is the lowest share of its level, and
	// maxSoundShare the highest of sound with a gain: what is compared lies within
	// what of the source is, so it cannot be much louder.
	minSoundMatch, quietSound, minSoundShare, maxSoundShare = 0.4, 100.0, 0.25, 2.0
	// minSound is the shortest sound that is compared, in seconds.
	minSound = 0.3
)

// errNotDecoded means that a run gave no picture of the source.
var errNotDecoded = errors.New("the source was not decoded")

// compareWithSource compares the renditions with the source at random moments. What
// looks wrong after seeking is compared once more, with everything before it decoded.
func (u *untrustedCheck) compareWithSource(ctx context.Context) error {
	moments, err := u.chooseMoments()
	if err != nil {
		return refuseContent("", err)
	}
	allowed, undecoded := 0, 0
	if u.out.DecodeErrors > 0 {
		allowed = len(moments) / 2 // where the source is damaged, decoders show different pictures
	}
	for _, m := range moments {
		err := u.compareMoment(ctx, m, true)
		if isContentError(err) {
			err = u.compareMoment(ctx, m, false)
		}
		if _, isRefused := errors.AsType[*RefusedError](err); isRefused && len(u.video) > 0 {
			err = u.compareWithOwn(ctx, m)
		}
		switch {
		case errors.Is(err, errNotDecoded): // the source is damaged here
			undecoded++
		case isContentError(err) && allowed > 0:
			allowed--
		case err != nil:
			return err
		}
	}
	if undecoded == len(moments) {
		return errNotDecoded
	}
	return nil
}

func isContentError(err error) bool {
	_, isRefused := errors.AsType[*RefusedError](err)
	return isRefused || errors.Is(err, errNotDecoded)
}

// compareMoment decodes a moment and judges it. Without seek, the source and the
// renditions are decoded apart, so that neither can spoil the other.
func (u *untrustedCheck) compareMoment(ctx context.Context, m moment, seek bool) error {
	return u.decodeMoment(ctx, m, seek, func(raw *rawFiles) error {
		for i := range u.video {
			c, err := u.comparePicture(m, i, raw)
			if err == nil {
				u.report(c)
				err = c.judgePicture(usualLimits)
			}
			if err != nil {
				return err
			}
		}
		for i := range u.audio {
			if err := u.compareSound(m, i, raw); err != nil {
				return err
			}
		}
		return nil
	})
}

// decodeMoment decodes a moment of the source and of the renditions, and calls compare.
func (u *untrustedCheck) decodeMoment(ctx context.Context, m moment, seek bool, compare func(*rawFiles) error) error {
	work, err := os.MkdirTemp(u.dir, ".compare-")
	if err != nil {
		return spaceError(err)
	}
	defer os.RemoveAll(work)
	r := u.newSampleRun(m, work)
	r.addSource(seek)
	if !seek {
		if err := r.run(ctx); err != nil {
			return err
		}
		r = u.newSampleRun(m, work)
	}
	if err := r.addRenditions(); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	raw := &rawFiles{dir: work}
	err = compare(raw)
	return errors.Join(err, raw.err)
}

func (u *untrustedCheck) comparePicture(m moment, i int, raw *rawFiles) (c comparison, err error) {
	r := u.video[i]
	w, h := u.smallSize()
	plane := w * h
	want, got := raw.read("want.yuv"), raw.read(fmt.Sprintf("got-%d.yuv", i))
	full := raw.read(fmt.Sprintf("got-%d.y", i))
	switch {
	case len(want) != 6*plane:
		return c, errNotDecoded
	case len(got) != 6*plane:
		return c, refuse(r.dir, "no picture can be decoded at %.1f s", m.at)
	case len(full) != r.rung.Width*r.rung.Height:
		return c, refuse(r.dir, "the picture at %.1f s is not %dx%d pixels", m.at, r.rung.Width, r.rung.Height)
	}
	sharp, soft := raw.read(fmt.Sprintf("want-%d.y", i)), raw.read(fmt.Sprintf("soft-%d.y", i))
	if len(sharp) != len(full) || len(soft) != len(full) {
		return c, errNotDecoded
	}
	c = comparison{rendition: r.dir, at: m.at}
	c.setPictures(want, got, w, h)
	c.detail, c.detailLevel = detail(full, sharp, soft)
	return c, nil
}

func (u *untrustedCheck) report(c comparison) {
	if u.tools.compared != nil {
		u.tools.compared(c)
	}
}

// comparison is how a rendition compares with the source at a moment.
type comparison struct {
	rendition   string
	at          float64
	similarity  float64 // of the less similar small picture; 1 if equal
	colour      float64 // mean difference of the worst colour plane
	colourLevel float64 // of the source
	colourShare float64
	motion      float64 // between the two pictures of the source
	motionMatch float64
	detail      float64 // share of what the source has
	detailLevel float64
	sound       float64 // level of the source
	gotSound    float64
	soundMatch  float64
}

// limits are those that depend on how well the picture can be encoded at its rate.
type limits struct{ similarity, colourError, colourShare, motionMatch, detail float64 }

var usualLimits = limits{minSimilarity, maxColourError, minColourShare, minMotionMatch, minDetail}

func (c comparison) judgePicture(l limits) error {
	switch {
	case c.similarity < l.similarity:
		return refuse(c.rendition, "the picture at %.1f s is not the source's: their similarity is %.2f of 1", c.at,
			c.similarity)
	case c.colour > l.colourError, c.colourLevel >= minColour && c.colourShare < l.colourShare:
		return refuse(c.rendition, "the colours at %.1f s are not the source's", c.at)
	case c.motion >= minMotion && c.motionMatch < l.motionMatch:
		return refuse(c.rendition, "the motion at %.1f s is not the source's: their correlation is %.2f of 1", c.at,
			c.motionMatch)
	case c.detailLevel >= minDetailLevel && c.detail < l.detail:
		return refuse(c.rendition, "the picture at %.1f s has %.0f %% of the detail of its size: it was scaled up", c.at,
			100*max(c.detail, 0))
	}
	return nil
}

func (u *untrustedCheck) compareSound(m moment, i int, raw *rawFiles) error {
	r := u.audio[i]
	want, got := raw.sound(fmt.Sprintf("want-%d.pcm", i)), raw.sound(fmt.Sprintf("got-%d.pcm", i))
	if len(want) < len(got)+1 || len(want) < soundRate*minSound {
		return nil // the stream ends here
	}
	if len(got) < soundRate*minSound {
		return refuse(r.dir, "no sound can be decoded at %.1f s", m.at)
	}
	c := comparison{
		rendition: r.dir, at: m.at, sound: rootMeanSquare(want) * r.gainFactor(), gotSound: rootMeanSquare(got),
		soundMatch: soundMatch(want, got),
	}
	u.report(c)
	if r.gain() != 0 && c.sound >= quietSound && c.gotSound > maxSoundShare*c.sound {
		return refuse(r.dir, "it is louder at %.1f s than the loudness that was asked for", m.at)
	}
	return c.judgeSound()
}

func (c comparison) judgeSound() error {
	switch {
	case c.sound < quietSound && c.gotSound > 10*quietSound:
		return refuse(c.rendition, "there is sound at %.1f s, where the source is silent", c.at)
	case c.sound < quietSound:
		return nil
	case c.gotSound < minSoundShare*c.sound:
		return refuse(c.rendition, "it is silent at %.1f s, where the source is not", c.at)
	case c.soundMatch < minSoundMatch:
		return refuse(c.rendition, "the sound at %.1f s is not the source's: their correlation is %.2f of 1", c.at,
			c.soundMatch)
	}
	return nil
}

// rawFiles reads what a run decoded. A missing file is empty.
type rawFiles struct {
	dir string
	err error // the first error of the host
}

func (r *rawFiles) read(name string) []byte {
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && r.err == nil {
		r.err = err
	}
	return b
}

// sound reads 16-bit samples.
func (r *rawFiles) sound(name string) []float64 {
	b := r.read(name)
	list := make([]float64, len(b)/2)
	for i := range list {
		list[i] = float64(int16(binary.LittleEndian.Uint16(b[2*i:])))
	}
	return list
}

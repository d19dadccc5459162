package media

import (
	"cmp"
	"slices"
	"strings"
)

// chooseVideo takes the track that is the video. Covers, thumbnails and tracks
// that have no size or no packets do not count.
func chooseVideo(raw *rawProbe, tracks map[int]*trackTiming, info *Info, can decoderSet) (*rawStream, error) {
	var tried []*rawStream
	var unknown string
	info.chooseCover(raw, can)
	for i := range raw.Streams {
		s := &raw.Streams[i]
		if s.Type != "video" || s.Disposition.Cover != 0 {
			continue
		}
		name, known := can.supports(s)
		if !known {
			unknown = name
			continue
		}
		if s.Disposition.Thumbs != 0 || s.Width <= 0 || s.Height <= 0 || tracks[s.Index] == nil || tracks[s.Index].packets == 0 {
			continue
		}
		tried = append(tried, s)
	}
	switch {
	case len(tried) > 0:
		return mainVideo(tried, tracks), nil
	case unknown != "":
		return nil, &RejectedError{Reason: "the video codec \"" + unknown + "\" is not supported"}
	case raw.rejectedSize != "" && hasUnsizedVideo(raw):
		return nil, pictureTooLarge(raw.rejectedSize)
	case hasEmptyVideo(raw):
		return nil, &RejectedError{Reason: "the video has no frames in it"}
	}
	return nil, nil
}

// much is the share of the most frames, and of the longest time, below which a
// track is something beside the video: the still picture of a motion photo, a
// preview. Two versions of one video differ by less.
const minorShare = 0.5

// mainVideo takes, of the tracks that have many frames and last long, the one
// marked as default, and then the one with the largest picture. The mark and the
// size come second: cameras mark and enlarge the still picture.
func mainVideo(tried []*rawStream, tracks map[int]*trackTiming) *rawStream {
	tried = mostOf(tried, func(s *rawStream) float64 { return float64(tracks[s.Index].packets) })
	tried = mostOf(tried, func(s *rawStream) float64 { return tracks[s.Index].duration() })
	return slices.MinFunc(tried, func(a, b *rawStream) int {
		return cmp.Or(cmp.Compare(b.Disposition.Default, a.Disposition.Default), cmp.Compare(b.Width*b.Height, a.Width*a.Height))
	})
}

// most keeps what has much of something, in comparison.
func mostOf[T any](all []T, of func(T) float64) []T {
	top := 0.0
	for _, x := range all {
		top = max(top, of(x))
	}
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return of(x) < minorShare*top })
}

// chooseCover takes the front cover, or else the first one, of those that can be
// decoded.
func (i *Info) chooseCover(raw *rawProbe, can decoderSet) {
	chosenFront := false
	for j := range raw.Streams {
		s := &raw.Streams[j]
		if s.Type != "video" || s.Disposition.Cover == 0 {
			continue
		}
		_, known := can.supports(s)
		switch front := strings.EqualFold(s.tag("comment"), "Cover (front)"); {
		case !known || s.Width <= 0 || s.Height <= 0 || s.Width*s.Height > maxPixels:
			i.warn("the cover picture (stream %d) is left out: it is too large or cannot be read", s.Index)
		case i.Cover < 0, front && !chosenFront:
			i.Cover, chosenFront = s.Index, front
		}
	}
}

// rankAudio is how far behind others a sound track comes: what lasts less than
// half as long as the longest is a jingle or damaged; commentaries and
// descriptions are for those who ask for them, unless they are marked as default.
func rankAudio(s *rawStream, duration, longest float64) int {
	d := s.Disposition
	switch {
	case duration < minorShare*longest:
		return 3
	case d.Default != 0:
		return 0
	case d.Comment != 0 || d.Impaired != 0:
		return 2
	}
	return 1
}

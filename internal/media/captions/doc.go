// Package captions reads subtitle files and writes them as WebVTT, whole and in segments for HLS.
//
//	cues, err := captions.Parse("film.srt", data, "de")
//	cues = captions.Fit(cues, 0, duration)
//	err = captions.Write(dir, cues, duration)
//
// [Parse] reads SubRip, WebVTT, ASS, SSA and TTML in the encodings in which such files exist. An [*Error] names
// the line that cannot be read.
//
// [Write] keeps the times, the text, italics, bold and underline, the speaker, and whether the text stands at the top of the
// picture. Fonts, colours, style sheets and pictures are left out: players show captions as their viewers have chosen.
//
// [ParseChapters] reads chapters, which are written as WebVTT and as JSON.
//
// The package knows nothing of ffmpeg, tasks or databases.
package captions

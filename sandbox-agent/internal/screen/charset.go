package screen

// A charset is a character set that a program can have ASCII stand for.
type charset uint8

const (
	charsetASCII charset = iota
	charsetGraphics
	charsetBritish
	charsetDutch
	charsetFinnish
	charsetFrench
	charsetCanadian
	charsetGerman
	charsetItalian
	charsetDanish
	charsetSpanish
	charsetSwedish
	charsetSwiss
)

// designators are the finals of the sequences that choose a set. The first of
// each is used to choose it again.
var designators = [...]string{"B", "0", "A", "4", "C5", "R", "Q", "K", "Y", "E6", "Z", "H7", "="}

// replacements say which characters stand for which, pair by pair.
var replacements = [...]string{
	charsetASCII: "",
	charsetGraphics: "`◆a▒b␉c␌d␍e␊f°g±h␤i␋j┘k┐l┌m└n┼o⎺p⎻q─r⎼s⎽" +
		"t├u┤v┴w┬x│y≤z≥{π|≠}£~·",
	charsetBritish:  "#£",
	charsetDutch:    "#£@¾[i\\½]|{¨|f}¼~´", // xterm.js takes the i of ij
	charsetFinnish:  "[Ä\\Ö]Å^Ü`é{ä|ö}å~ü",
	charsetFrench:   "#£@à[°\\ç]§{é|ù}è~¨",
	charsetCanadian: "@à[â\\ç]ê^î`ô{é|ù}è~û",
	charsetGerman:   "@§[Ä\\Ö]Ü{ä|ö}ü~ß",
	charsetItalian:  "#£@§[°\\ç]é`ù{à|ò}è~ì",
	charsetDanish:   "@Ä[Æ\\Ø]Å^Ü`ä{æ|ø}å~ü",
	charsetSpanish:  "#£@§[¡\\Ñ]¿{°|ñ}ç",
	charsetSwedish:  "@É[Ä\\Ö]Å^Ü`é{ä|ö}å~ü",
	charsetSwiss:    "#ù@à[é\\ç]ê^î_è`ô{ä|ö}ü~û",
}

// charsetTables are replacements by ASCII character.
var charsetTables = func() (tables [len(replacements)][del]rune) {
	for set := range tables {
		for c := range tables[set] {
			tables[set][c] = rune(c)
		}
		pairs := []rune(replacements[set])
		for i := 0; i < len(pairs); i += 2 {
			tables[set][pairs[i]] = pairs[i+1]
		}
	}
	return tables
}()

// translate returns what an ASCII character stands for.
func (c charset) translate(b byte) rune { return charsetTables[c][b] }

// charsets are the sets chosen. Which of them is current is kept apart since
// restoring the cursor restores that alone.
type charsets struct {
	g       [4]charset
	level   uint8 // of g
	current charset
}

func (c *charsets) shift(level uint8) {
	c.level = level
	c.current = c.g[level]
}

func (c *charsets) designate(level uint8, set charset) {
	c.g[level] = set
	if c.level == level {
		c.current = set
	}
}

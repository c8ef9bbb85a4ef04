"""Language: words, codes and kinds of answers in English and German texts."""

"""What a book is, and questions that it answers, for the page that has not been asked yet."""

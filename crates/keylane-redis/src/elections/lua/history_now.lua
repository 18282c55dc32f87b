return history()
